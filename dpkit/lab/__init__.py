"""What the chapters need beside the method.

``common/`` -- what several chapters share; ``<chapter>/`` -- what one alone
needs: what it runs, its pictures, the programs that it launches, and ``check``
of its exercises; ``museum/`` -- wrong versions that were once published.
"""
