"""Scripts that build the site and show it.

``build_site`` -- begin here: it runs jupyter-book, and then what follows;
``pack_python``, with ``pyodide`` -- the Python that runs in pages;
``notebook_pictures`` -- pictures in the notebooks that readers download;
``print_page`` -- each part of the book on a page to print;
``search_index`` -- what the search knows;
``slim_site`` -- takes out what no page uses;
``serve`` -- shows the site at a port.
"""
