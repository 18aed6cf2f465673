"""Which Python the tests and the chapters run in, and whether it will do.

``torch_there`` -- makes an environment that sees the torch that is there;
``gpu_fits`` -- says which GPUs the pinned torch will not be able to use;
``fit_for_tests`` -- says why tests cannot run, or why none runs on a GPU.
"""
