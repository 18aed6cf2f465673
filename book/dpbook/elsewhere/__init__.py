"""What the chapter ``elsewhere`` runs, shows and draws.

``results`` -- what the listings of other frameworks give, here or recorded;
``listings`` -- the listings in ``book/elsewhere``, in the page;
``steps`` -- the same steps by ``dpkit``, on simulated devices;
``pictures`` -- the step that all frameworks take;
``cuts`` -- how a batch is cut, in each framework;
``precision`` -- the same steps in 32 bits, and the signs that turn;
``check`` -- the checks of the exercises.
"""
