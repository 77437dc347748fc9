"""A network that depends on many things besides its weights, and changes of each of them."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import io
import os
import sys
import types
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

D, K = 6, 3
RATE = 1.0
TABLE: dict[str, Any] = {"rates": [1.0]}
fixed = functools.partial(torch.mul, torch.ones(()))


def package(name: str, **values: Any) -> types.ModuleType:
    """Make a module of the user's own."""
    module = types.ModuleType(name)
    module.__file__ = f"/somewhere/{name.replace('.', '/')}.py"
    vars(module).update(values)
    sys.modules[name] = module
    return module


pkg = package("attacked", part=package("attacked.part", RATE=1.0))
package("attacked_late", RATE=1.0, inner=types.SimpleNamespace(rate=1.0))


class Descriptor:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __get__(self, instance: Any, owner: Any) -> float:
        return self.rate


class Slots:
    __slots__ = ("__hidden", "rate")

    def __init__(self) -> None:
        self.rate, self.__hidden = 1.0, 1.0

    def set(self, value: float) -> None:
        self.__hidden = value

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.rate * self.__hidden


@dataclasses.dataclass
class Settings:
    name: str = "settings"

    def __post_init__(self) -> None:
        self.rate = 1.0


class Rates(UserDict[str, float]):
    pass


class Listed(list):
    rate = 1.0


class Reduced:
    """Does not say all that it has when it is pickled."""

    def __init__(self) -> None:
        self.rate = 1.0

    def __reduce__(self) -> Any:
        return Reduced, ()

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.rate


def scaled(by: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x * by


def with_default(x: Tensor, by: float = 1.0, *, also: float = 1.0) -> Tensor:
    return x * by * also


@torch.no_grad()
def wrapped(x: Tensor) -> Tensor:
    return x * inner_rate()


def inner_rate() -> float:
    return 1.0


@functools.lru_cache
def remembered() -> Callable[[Tensor], Tensor]:
    return lambda x: nested(x)


def nested(x: Tensor) -> Tensor:
    return x * TABLE.get("nested", 1.0)


class Loose(nn.Module):
    """A module that its model does not register."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(D, D)
        self.rate = 1.0
        with torch.no_grad():
            self.line.weight.copy_(torch.eye(D))
            self.line.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x) * self.rate


class Base(nn.Module):
    shift = 0.0
    described = Descriptor(1.0)

    def helper(self, x: Tensor) -> Tensor:
        return x + self.shift

    @property
    def rate(self) -> float:
        return 1.0

    @staticmethod
    def fixed(x: Tensor) -> Tensor:
        return x


class Net(Base):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.norm, self.fc = nn.Linear(5, D), nn.LayerNorm(D), nn.Linear(D, K)
        self.number, self._number = 1.0, 1.0
        self.loose = [Loose()]
        self.sparse = torch.zeros(D).to_sparse()
        self.series = pandas.Series([1.0, 2.0])
        self.frame = pandas.DataFrame({"rate": [1.0]})
        self.settings, self.slots, self.reduced = Settings(), Slots(), Reduced()
        self.stream = io.BytesIO(bytes([1]))
        self.view = memoryview(bytearray([1]))
        self.method = Slots().__call__
        self.partial = functools.partial(with_default, by=1.0)
        self.closure = scaled(1.0)
        self.listed, self.rates = Listed([1.0]), Rates(rate=1.0)
        self.ordered = OrderedDict(a=1.0, b=2.0)
        self.fallback = defaultdict(lambda: 1.0)
        self.queue = deque([1.0, 2.0], maxlen=2)
        self.objects = np.array([1.0, None], dtype=object)
        self.record = np.array([(1.0, 2)], dtype=[("rate", "f8"), ("n", "i4")])
        self.fraction = Fraction(1, 1)
        self.keys = {1: 1.0}
        self.state = np.random.RandomState(0)
        self.halves = torch.ones(D).to(torch.bfloat16)
        self.getter = [1.0, 2.0].__getitem__
        self.doubles = (ctypes.c_double * 2)(1.0, 2.0)

    def forward(self, x: Tensor) -> Tensor:
        from attacked_late import RATE as LATE

        z = torch.relu(self.norm(self.body(x))) * RATE * TABLE["rates"][0] * pkg.part.RATE * LATE
        z = self.loose[0](z) + self.sparse.to_dense()
        z = z * float(self.series.iloc[0]) * float(self.frame["rate"].iloc[0]) * self.settings.rate
        z = self.method(self.slots(self.reduced(z))) * self.stream.getvalue()[0] * self.view[0]
        z = self.closure(self.partial(z)) * self.listed[0] * self.listed.rate * self.rates["rate"]
        z = z * next(iter(self.ordered.values())) * self.fallback.default_factory() * self.queue[0]
        z = z * self.objects[0] * float(self.record["rate"][0]) * float(self.fraction)
        z = z * self.keys.get(1, 2.0) * (1 + self.state.get_state()[2] % 2) * self.halves.float()
        z = self.helper(self.fixed(z)) * self.rate * self.described * self.number * self._number
        z = fixed(with_default(wrapped(remembered()(z)))) * self.getter(0) * self.doubles[0]
        return self.fc(F.leaky_relu(z, 0.1))


def other_forward(self: Any, x: Tensor) -> Tensor:
    return self.fc(2 * self.body(x))


def one_kind(text: str) -> Callable[[Any], None]:
    """A change as a statement on the model."""

    def change(model: Any) -> None:
        with torch.no_grad():
            exec(text, {**globals(), "model": model})

    return change


def in_module(**values: Any) -> Callable[[Any], None]:
    return lambda model: globals().update(values)


def linear(rate: float) -> nn.Linear:
    made = nn.Linear(D, D)
    with torch.no_grad():
        made.weight.copy_(rate * torch.eye(D))
        made.bias.zero_()
    return made


def hooked(module: Any, inputs: Any, output: Any) -> Any:
    return 2 * output


def on_norm(module: Any, inputs: Any, output: Any) -> Any:
    return 2 * output if isinstance(module, nn.LayerNorm) else None


TEXTS = {
    "number": "model.number = 2.0",
    "private number": "model._number = 2.0",
    "weight": "model.body.weight[0, 0] += 1",
    "weight through data": "model.body.weight.data[0, 0] += 1",
    "weight through numpy": "model.body.weight.detach().numpy()[0, 0] += 1",
    "weight assigned": "model.body.weight = nn.Parameter(model.body.weight.flip(0))",
    "weight behind the scenes": "model.body._parameters['bias'] = nn.Parameter(torch.ones(D))",
    "module behind the scenes": "model._modules['norm'] = nn.Identity()",
    "eps": "model.norm.eps = 0.5",
    "forward hook": "model.norm.register_forward_hook(hooked)",
    "forward pre-hook": "model.norm.register_forward_pre_hook(lambda m, i: (i[0] + torch.arange(D),))",
    "hook with a closure": "model.norm.register_forward_hook(lambda m, i, o, by=2.0: o * by)",
    "hook on all modules": "nn.modules.module.register_module_forward_hook(on_norm)",
    "unregistered weight": "model.loose[0].line.weight.mul_(2)",
    "unregistered setting": "model.loose[0].rate = 2.0",
    "unregistered hook": "model.loose[0].register_forward_hook(hooked)",
    "unregistered inner hook": "model.loose[0].line.register_forward_hook(hooked)",
    "unregistered module swapped": "model.loose[0].line = linear(2.0)",
    "unregistered module replaced": "model.loose = [linear(2.0)]",
    "sparse tensor": "model.sparse = torch.ones(D).to_sparse()",
    "sparse values": "model.sparse = torch.eye(D)[2].to_sparse()",
    "series": "model.series[0] = 2.0",
    "frame": "model.frame.loc[0, 'rate'] = 2.0",
    "attribute of a dataclass": "model.settings.rate = 2.0",
    "slot": "model.slots.rate = 2.0",
    "private slot": "model.slots.set(2.0)",
    "what pickle leaves out": "model.reduced.rate = 2.0",
    "stream": "model.stream = io.BytesIO(bytes([2]))",
    "stream in place": "model.stream.seek(0); model.stream.write(bytes([2]))",
    "memoryview": "model.view[0] = 2",
    "object of a bound method": "model.method.__self__.rate = 2.0",
    "partial": "model.partial = functools.partial(with_default, by=2.0)",
    "closure": "model.closure = scaled(2.0)",
    "cell": "model.closure.__closure__[0].cell_contents = 2.0",
    "list subclass": "model.listed[0] = 2.0",
    "attribute of a list subclass": "model.listed.rate = 2.0",
    "mapping": "model.rates['rate'] = 2.0",
    "order": "model.ordered.move_to_end('a')",
    "default factory": "model.fallback.default_factory = lambda: 2.0",
    "queue": "model.queue.rotate(1)",
    "object array": "model.objects[0] = 2.0",
    "record array": "model.record['rate'][0] = 2.0",
    "fraction": "model.fraction = Fraction(2, 1)",
    "kind of a key": "model.keys = {'1': 1.0}",
    "state of a generator": "model.state.set_state(('MT19937', model.state.get_state()[1], 1))",
    "bfloat16": "model.halves[0] = 2.0",
    "method of a builtin": "model.getter = [2.0, 2.0].__getitem__",
    "array of C": "model.doubles[0] = 2.0",
    "list behind a method": "model.getter.__self__[0] = 2.0",
    "forward of the instance": "model.forward = functools.partial(other_forward, model)",
    "forward of the class": "Net.forward = other_forward",
    "another class": "model.__class__ = type('Net', (Net,), {'forward': other_forward})",
    "method of a base": "Base.helper = lambda self, x: x + torch.arange(D)",
    "property": "Base.rate = property(lambda self: 2.0)",
    "static method": "Base.fixed = staticmethod(lambda x: x + torch.arange(D))",
    "class attribute": "Base.shift = torch.arange(D)",
    "descriptor": "vars(Base)['described'].rate = 2.0",
    "descriptor replaced": "Base.described = Descriptor(2.0)",
    "method of an attribute": "Slots.__call__ = lambda self, x: 2 * x",
    "container of the module": "TABLE['rates'][0] = 2.0",
    "what a called function uses": "TABLE['nested'] = 2.0",
    "part of a package": "pkg.part.RATE = 2.0",
    "import inside": "sys.modules['attacked_late'].RATE = 2.0",
    "default": "with_default.__defaults__ = (2.0,)",
    "keyword default": "with_default.__kwdefaults__['also'] = 2.0",
    "code of a function": "with_default.__code__ = (lambda x, by=1.0, *, also=1.0: 2 * x).__code__",
    "library function": "F.leaky_relu = lambda x, slope: 2 * x",
    "layer of the library": "nn.LayerNorm.forward = lambda self, x: x",
}  # fmt: skip
CHANGES: dict[str, Callable[[Any], None]] = {name: one_kind(text) for name, text in TEXTS.items()} | {
    "constant": in_module(RATE=2.0),
    "function": in_module(with_default=lambda x: 2 * x),
    "partial of the module": in_module(fixed=functools.partial(torch.mul, 2 * torch.ones(()))),
    "inside of a wrapped function": in_module(inner_rate=lambda: 2.0),
    "inside of a remembered function": in_module(nested=lambda x: 2 * x),
}


# What nobody can read


class Blind(nn.Module):
    """Depends on something that its parts do not show."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.fc = nn.Linear(5, D), nn.Linear(D, K)
        self.file = str(folder / "rate.txt")
        Path(self.file).write_text("1.0")
        os.environ["ATTACKED_RATE"] = "1.0"
        self.number = ctypes.pointer(ctypes.c_double(1.0)) if isinstance(self, OfC) else None

    def rate(self) -> float:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.relu(self.body(x)) * self.rate())


class OfFile(Blind):
    def rate(self) -> float:
        with open(self.file, encoding="utf-8") as file:
            return float(file.read())


class OfEnvironment(Blind):
    def rate(self) -> float:
        return float(os.environ["ATTACKED_RATE"])


class OfText(Blind):
    def rate(self) -> float:
        return float(eval("RATE"))


class OfGlobals(Blind):
    def rate(self) -> float:
        return float(globals()["RATE"])


class OfC(Blind):
    def rate(self) -> float:
        return float(self.number.contents.value)


class OfRun(Blind):
    """Keeps what it sees, which may be what it uses."""

    def forward(self, x: Tensor) -> Tensor:
        z = torch.relu(self.body(x)) * getattr(self, "scale", 1.0)
        self.seen = z.detach()
        return self.fc(z)


BLIND: dict[str, tuple[type[Blind], Callable[[Any], None]]] = {
    "a file": (OfFile, lambda model: Path(model.file).write_text("2.0") and None),
    "the environment": (OfEnvironment, lambda model: os.environ.update(ATTACKED_RATE="2.0")),
    "evaluated text": (OfText, in_module(RATE=2.0)),
    "globals by name": (OfGlobals, in_module(RATE=2.0)),
    "memory of C": (OfC, lambda model: setattr(model.number.contents, "value", 2.0)),
    "what it keeps of a run": (OfRun, lambda model: setattr(model, "scale", 2.0)),
}


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Put back what changes of classes and modules leave."""
    kinds = [(kind, dict(vars(kind))) for kind in (Base, Net, Slots, nn.LayerNorm)]
    modules = [(vars(module), dict(vars(module))) for module in (sys.modules[__name__], F, pkg.part)]
    late, rates = sys.modules["attacked_late"], dict(TABLE)
    code, defaults, also = (
        with_default.__code__,
        with_default.__defaults__,
        with_default.__kwdefaults__["also"],
    )
    described = vars(Base)["described"]
    try:
        yield
    finally:
        for values, before in modules:
            values.update(before)
        for kind, before in kinds:
            for name in vars(kind).keys() - before.keys():
                delattr(kind, name)
            for name, value in before.items():
                if vars(kind)[name] is not value:
                    setattr(kind, name, value)
        TABLE.clear()
        TABLE.update(rates, rates=[1.0])
        late.RATE, described.rate = 1.0, 1.0
        with_default.__code__, with_default.__defaults__ = code, defaults
        with_default.__kwdefaults__["also"] = also
        nn.modules.module._global_forward_hooks.clear()
        os.environ.pop("ATTACKED_RATE", None)
