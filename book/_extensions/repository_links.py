"""Derive the buttons that leave the site from the one `repository.url`.

Jupyter Book has a switch for each button, and a switch without an address
ends the build. Here an address is enough, and no address means no button.

Colab and Binder open the notebooks of `branch`, or of `notebooks_branch` if
`_config.yml` names one: `make notebooks-branch` writes it.
"""

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

COLAB = {"colab_url": "https://colab.research.google.com"}
BINDER = {
    "binderhub_url": "https://mybinder.org",
    "notebook_interface": "jupyterlab",
}


def add_buttons(app: Sphinx, config: Config) -> None:
    """Show the repository and launch buttons if there is an address."""
    options: dict[str, Any] = config.html_theme_options
    url = options.get("repository_url") or ""
    options["use_repository_button"] = bool(url)
    options["launch_buttons"] = launchers(url)
    if config.notebooks_branch:
        # The theme has this branch in the addresses of launch buttons alone.
        options["repository_branch"] = config.notebooks_branch


def published_site(config: Config) -> str:
    """Return the address of the published site, which ends in "/", or "".

    Without a setting `html_baseurl` it is that of GitHub Pages, from the
    address of the repository.
    """
    if config.html_baseurl:
        return f"{config.html_baseurl.rstrip('/')}/"
    url = config.html_theme_options.get("repository_url") or ""
    match = re.fullmatch(r"https://github\.com/([^/]+)/([^/]+)", url)
    return f"https://{match[1].lower()}.github.io/{match[2]}/" if match else ""


def launchers(url: str) -> dict[str, str]:
    """Return what can open a notebook of the repository at `url`."""
    if "github.com/" in url:
        return COLAB | BINDER
    # Colab opens notebooks from GitHub alone.
    return dict(BINDER) if url else {}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_config_value("notebooks_branch", "", "html")
    app.connect("config-inited", add_buttons)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
