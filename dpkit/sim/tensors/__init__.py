"""The simulated tensor, and what happens when an operation runs on it.

``tensor`` -- the way of an operation: begin here;
``charge`` -- what it costs on the clock;
``dispatch_rule`` -- how torch finds the way of an operation;
``backward`` -- backward on one thread, and its errors;
``behaviour`` -- how a tensor is made, printed, copied, pickled and read;
``storages``, ``modules``, ``initialization`` -- what torch does with such
    tensors elsewhere.
"""
