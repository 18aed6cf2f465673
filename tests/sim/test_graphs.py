"""CUDA graphs on simulated devices: values, memory, time, what is refused."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpkit import sim

sim.register()
LAUNCH = sim.HOSTS["eager"].launch_seconds


@pytest.fixture(autouse=True)
def cuda():
    with sim.machine(num_devices=2), sim.as_cuda():
        yield


@pytest.fixture
def graph():
    return torch.cuda.CUDAGraph()


def small_net():
    """A network with buffers, random numbers, and a view between layers."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*layers, nn.Dropout(0.3), nn.Linear(144, 5)).cuda()


def batches(count=3):
    torch.manual_seed(1)
    return [
        (torch.randn(9, 1, 8, 8), torch.randint(5, (9,))) for _ in range(count)
    ]


def train(make_optimizer, is_graphed):
    """Take a step for each batch; return losses, state, seconds of a step."""
    net = small_net()
    optimizer = make_optimizer(net.parameters())
    X, y = (tensor.cuda() for tensor in batches()[0])

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    torch.manual_seed(2)
    step()
    if is_graphed:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
    found = []
    for images, labels in batches():
        X.copy_(images)
        y.copy_(labels)
        with dpkit.Timer([X.device]) as timer:
            if is_graphed:
                graph.replay()
            else:
                loss = step()
        found.append(loss.item())
    values = [found, [v.cpu() for v in net.state_dict().values()]]
    return *values, timer.seconds


def sgd(params):
    return torch.optim.SGD(params, 0.1, momentum=0.9)


def adam(params):
    return torch.optim.Adam(params, capturable=True)


@pytest.mark.parametrize("make_optimizer", [sgd, adam])
def test_replays_equal_an_eager_run(make_optimizer):
    losses, state, _ = train(make_optimizer, is_graphed=False)
    graphed_losses, graphed_state, _ = train(make_optimizer, is_graphed=True)
    assert len(set(losses)) == 3  # a static input that is not read again
    assert graphed_losses == losses
    for value, graphed in zip(state, graphed_state, strict=True):
        assert torch.equal(value, graphed)


def test_a_capture_changes_no_values(graph):
    net, X = small_net(), torch.ones(2, 1, 8, 8).cuda()
    optimizer = sgd(net.parameters())
    before = {name: v.clone() for name, v in net.state_dict().items()}
    random = torch.get_rng_state()
    with torch.cuda.graph(graph):
        net(X).sum().backward()
        optimizer.step()
    assert torch.equal(torch.get_rng_state(), random)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_replay_is_one_launch(graph):
    x = torch.ones(256, 256).cuda()

    def work():
        y = x
        for _ in range(20):
            y = y @ x
        return y

    def times(run):
        torch.cuda.synchronize()
        with sim.trace() as timeline:
            run()
            torch.cuda.synchronize()
        on_device = [s for s in timeline.spans if s.kind == "compute"]
        on_host = [s for s in timeline.spans if s.kind == "launch"]
        return on_host, on_device, timeline.makespan

    launches, kernels, _ = times(work)
    assert len(launches) == len(kernels) == 20
    with torch.cuda.graph(graph):
        y = work()
    launches, replayed, makespan = times(graph.replay)
    assert [span.name for span in launches] == ["CUDA graph"]
    assert [s.name for s in replayed] == [s.name for s in kernels]
    seconds = [s.end - s.start for s in replayed]
    assert seconds == pytest.approx([s.end - s.start for s in kernels])
    wait = sim.HOSTS["eager"].wait_seconds
    assert makespan == pytest.approx(LAUNCH + sum(seconds) + wait)
    assert replayed[0].stream == kernels[0].stream  # not that of the capture
    assert torch.equal(y, work())


def test_a_graph_keeps_what_its_operators_need(graph):
    x = torch.ones(1000).cuda()  # 4000 bytes
    before = torch.cuda.memory_allocated()
    with torch.cuda.graph(graph):
        y = ((x + 1) * 2).sum()  # at most two of 4000 bytes at once
    held = 2 * 4000
    assert torch.cuda.memory_allocated() - before == held
    torch.cuda.reset_peak_memory_stats()
    graph.replay()
    assert torch.cuda.max_memory_allocated() - before == held
    assert y.item() == 4000
    graph.reset()
    assert torch.cuda.memory_allocated() - before == y.nbytes


def test_graphed_callables_learn_as_the_module():
    def gradients(is_graphed):
        net = small_net()
        net[4].p = 0.0
        X = torch.ones(2, 1, 8, 8).cuda()
        if is_graphed:
            net = torch.cuda.make_graphed_callables(net, (X,))
        else:
            for _ in range(3):
                net(X)  # what warms up moves the statistics of batch norm
        net(batches()[0][0][:2].cuda()).square().sum().backward()
        return [p.grad.cpu() for p in net.parameters()]

    for eager, graphed in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(eager, graphed)


def test_without_values_it_has_its_time(graph):
    with sim.machine(backing="meta"):
        x = torch.empty(256, 256).cuda()
        with torch.cuda.graph(graph):
            x @ x @ x
        with dpkit.Timer([x.device]) as timer:
            graph.replay()
        with dpkit.Timer([x.device]) as eager:
            x @ x @ x
        assert LAUNCH < timer.seconds < eager.seconds
        del x
        graph.reset()


X = torch.ones(3)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda x: x.sum().item(), "a copy that the host waits for"),
        (lambda x: x.cpu(), "a copy that the host waits for"),
        (lambda x: X.cuda(), "a copy that the host waits for"),
        (lambda x: x.copy_(X), "a copy that the host waits for"),
        (lambda x: x.nonzero(), "the host waits for the device"),
        (lambda x: torch.cuda.synchronize(), "the host waits for the device"),
        (lambda x: torch.cuda.CUDAGraph().capture_begin(), "another capture"),
    ],
)
def test_what_cuda_forbids_is_refused(graph, work, words):
    x = torch.ones(3).cuda()
    refused = pytest.raises(RuntimeError, match="is capturing.*" + words)
    with refused, torch.cuda.graph(graph):
        work(x.add_(1))
    assert not torch.cuda.is_current_stream_capturing()
    assert x.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="without a preceding successful"):
        graph.replay()


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda x: x.to("cuda:1"), "a copy between devices"),
        (lambda x: torch.cuda.Event().record(), "an event"),
        (lambda x: torch.ones(2, device="cuda:1"), "several streams or dev"),
    ],
)
def test_what_is_not_simulated_is_refused(graph, work, words):
    x = torch.ones(3).cuda()
    refused = pytest.raises(NotImplementedError, match=words)
    with refused, torch.cuda.graph(graph):
        work(x)


def test_an_optimizer_that_counts_on_the_host_is_refused(graph):
    p = nn.Parameter(torch.ones(3).cuda())
    p.grad = torch.ones(3).cuda()
    refused = pytest.raises(RuntimeError, match="Adam but param_groups' cap")
    with refused, torch.cuda.graph(graph):
        torch.optim.Adam([p]).step()


def test_a_graph_is_captured_once_on_one_machine(graph):
    x = torch.ones(3).cuda()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        x.add_(1)
    with pytest.raises(RuntimeError, match="already owns a captured graph"):
        graph.capture_begin()
    refused = pytest.raises(RuntimeError, match="hardware has changed")
    with sim.machine(accelerator="h100"), refused:
        graph.replay()
    graph.replay()
    assert x.tolist() == [2, 2, 2]


def test_races_are_not_looked_for(graph):
    refused = pytest.raises(NotImplementedError, match="search for races")
    with sim.trace(races=True), refused, torch.cuda.graph(graph):
        pass
