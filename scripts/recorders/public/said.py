"""What torchrun and check say of a script, among what the script prints."""

import re
from itertools import takewhile

OWN_LINES = re.compile(
    r"^(?:python -m dpkit|rank \d+ was at |\w*Error: )"
    r"|^  ranks have done different|^\d+ ranks (?:compute|agree) "
    r"|^found by torchrun: |^forward \d+: ranks have |^DistributedSampler \d+ "
    r"|^(?:gradients|parameters|buffers|learning rates) (?!before they)"
    r"|^step \d+: no parameter |^all of (?:these|them) |^it looks like: "
    r"|^(?:their GradScalers|each rank's are|before|targets|the others) "
    r"|^they agree until "
    r"|^in step \d+ one rank has "
    r"|^no optimizer has |^FullyShardedDataParallel "
)
NO_ALARM = re.compile(
    r"torchrun: the GPUs are |^\d+ ranks (?:compute the gradients|agree with)"
)


def alarms(text: str) -> list[str]:
    """Return what torchrun or check find, out of what is printed."""
    lines = text.splitlines()
    own = [line.strip() for line in lines if OWN_LINES.match(line)]
    if "Found" in lines:
        after = lines[lines.index("Found") + 1 :]
        found = takewhile(lambda x: x.startswith("  ! "), after)
        own += [line.removeprefix("  ! ") for line in found]
    return [x for x in dict.fromkeys(own) if not NO_ALARM.search(x)]
