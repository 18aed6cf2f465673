"""What was counted in a step, one row for each kind of number."""

from collections.abc import Mapping

from dpbook.splitting.three_ways import Cost


def counted_rows(
    costs: Mapping[tuple[str, str], Cost], alone: Cost
) -> list[dict[str, str]]:
    """Return the rows of a table that has the ways as its columns.

    Args:
        costs: A step of each way over each link, by way and link, on V100s.
            What is counted does not depend on the link.
        alone: The step of one device.
    """
    ways = list(dict.fromkeys(way for way, _ in costs))
    links = list(dict.fromkeys(link for _, link in costs))
    steps = {way: costs[way, links[0]] for way in ways}
    steps["one device"] = alone
    numbers: dict[str, dict[str, float]] = {
        "MB sent by a device": {
            way: step.bytes_sent / 1e6 for way, step in steps.items()
        },
        "messages of all": {way: step.messages for way, step in steps.items()},
        "MB of parameters": {
            way: step.parameter_bytes / 1e6 for way, step in steps.items()
        },
        "MB of activations": {
            way: step.activation_bytes / 1e6 for way, step in steps.items()
        },
    }
    for link in links:
        milliseconds = {way: 1e3 * costs[way, link].seconds for way in ways}
        milliseconds["one device"] = 1e3 * alone.seconds
        numbers[f"ms, v100 and {link}"] = milliseconds
    return [
        {"of a step": what}
        | {name: f"{number:,.0f}" for name, number in row.items()}
        for what, row in numbers.items()
    ]
