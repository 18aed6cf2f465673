"""What a test leaves behind: the test that does so fails, by name.

A test that leaves a tensor on a simulated device, or other hardware there, is
in the way of the tests after it, which are others in another order::

    before a test    look at all kinds: tensors, threads, files, …
    the test         makes tensors, starts threads, writes files
    after it         look again, when its fixtures have been torn down
                     what is new, or has another value, is named; and is put
                     back, so that no other test fails by it

What fixtures of modules and of the session hold is no fault while they live.
When they have been torn down, they are looked at in the same way.
"""
