"""Put other batch norms in the place of a module's own."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dpkit.arguments import check_kind
from dpkit.batch_norm.deferred import DeferredBatchNorm
from dpkit.batch_norm.synchronized import SyncBatchNorm

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def convert(
    module: nn.Module, num_micro_batches: int | None = None
) -> nn.Module:
    """Replace every batch norm within a module, in place.

    The new ones have the very parameters and buffers of the old, and their
    modes; hooks are lost. Convert before wrapping for data parallelism. A
    batch norm itself is not changed: what takes its place is returned, else
    the module.

    They become :class:`~dpkit.batch_norm.SyncBatchNorm`; or, with a number,
    :class:`~dpkit.batch_norm.DeferredBatchNorm` for batches of so many
    micro-batches.

    Example:
        >>> net = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
        >>> dpkit.batch_norm.convert(net)[1]  # doctest: +ELLIPSIS
        SyncBatchNorm(5, eps=1e-05, momentum=0.1, affine=True, ...)
    """
    check_kind("module", module, nn.Module)
    # A batch norm in two places becomes one module again.
    new: dict[nn.Module | None, nn.Module] = {
        old: _in_place_of(old, num_micro_batches)
        for old in module.modules()
        if isinstance(old, BATCH_NORMS)
    }
    for parent in module.modules():
        for name, child in parent._modules.items():
            parent._modules[name] = new.get(child, child)
    return new.get(module, module)


def _in_place_of(
    old: _BatchNorm, num_micro_batches: int | None
) -> SyncBatchNorm | DeferredBatchNorm:
    new: SyncBatchNorm | DeferredBatchNorm = SyncBatchNorm(old.num_features)
    if num_micro_batches is not None:
        new = DeferredBatchNorm(old.num_features, num_micro_batches)
    for name in ("eps", "momentum", "affine", "track_running_stats"):
        setattr(new, name, getattr(old, name))
    new._parameters = dict(old._parameters)
    new._buffers = dict(old._buffers)
    new.training = old.training
    return new
