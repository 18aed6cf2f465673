"""How time passes on a cluster.

``clock`` -- hosts issue work, streams execute it in order: begin here;
``asked`` -- what a program asks of the clock, wherever the clock is;
``issuers`` -- the hosts and threads that issue work;
``queues`` -- the streams, whose work is placed in the order of time;
``resources`` -- what serves one user at a time: compute, a port;
``paths`` -- the ports and shared paths that a copy occupies;
``record`` -- what is written down: spans of time, blocks of memory.
"""
