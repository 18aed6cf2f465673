"""What makes chapters, runs them and copies them.

``new_chapter`` -- makes a chapter of what is in ``template``;
``run_cells`` -- runs the cells of a notebook;
``normal_form``, ``live_cells`` -- what of a run is stored, and how;
``run_plain`` -- runs the notebooks that readers download;
``copy_notebooks`` -- copies these to where a reader works on them.

``scripts/execute_notebooks.py`` runs and stores chapters.
"""
