"""What the owner of the repository uses.

``set_address`` -- writes the public address, and who the book is by;
``notebooks_branch`` -- commits the notebooks that Colab and Binder open;
``build_release`` -- the files of a release, by what
``release_requirements.txt`` lists;
``build_archive`` -- one zip for a course, with what is in ``archive``.
"""
