"""What the page ``plan-a-run`` shows.

Its seconds are the planner's: ``Case.seconds`` in ``dpbook/planner/case.py``.

``tables`` -- tables of layouts, of misses, and of cuts that were measured;
``published`` -- steps of Llama 3, and two readings of their rates;
``published_fsdp`` -- steps of Llama by PyTorch's FSDP;
``published_experts`` -- steps of layers with experts, in five ways;
``zero_messages_table`` -- steps by ZeRO-3 alone, as messages are added;
``clocks`` -- one step by the planner, and on simulated devices;
``pictures`` -- what each device of a layout has and sends.
"""
