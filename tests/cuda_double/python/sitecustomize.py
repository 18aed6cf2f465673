"""Python imports this module when it starts: torch is doubled from then on.

The double's runtime has to be loaded before torch is, and its kernels after;
so the import of torch is followed, whoever asks for it.
"""

import os

if os.environ.get("CUDA_DOUBLE_LIBRARIES"):
    from cuda_double import loading

    loading.follow_import_of_torch()
