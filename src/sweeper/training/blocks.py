"""Finding the blocks of a model: the modules it repeats, which are worth checkpointing or sharding.

Nothing is known of the model but its structure. Lists (ModuleList, ModuleDict, and Sequential whose
members are all of one kind) are looked through; modules of one class that stand side by side are
blocks. Where such modules differ in their shapes and hold repeated modules of their own, as the
stages of a ResNet or Swin transformer do, the inner ones are the blocks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from torch import nn

from sweeper.errors import UserError

Blocks = dict[str, nn.Module]  # full name -> module, in the model's order

_SMALL_CLASS = (
    0.1  # a class with less than this share of the largest class's parameters is no block
)
_MOST = 0.5  # a stage's inner blocks hold at least this share of its parameters


def find_blocks(model: nn.Module, pattern: str | None = None) -> Blocks:
    """The blocks of a model, each once even if the model uses it several times.

    Args:
        model: any module.
        pattern: regular expression that the full name of a block must match as a whole; of matches
            inside each other the outer one counts. None = find repeated blocks by structure.

    Raises:
        UserError: the pattern is not valid or matches nothing that is called, or there are no
            repeated blocks; the message names modules to choose from.
    """
    if pattern is not None:
        return _matching(model, pattern)
    found = _repeated(model)
    if not found:
        raise UserError(
            "ckpt.blocks",
            f"{type(model).__name__} repeats no block",
            f"name the modules by a regular expression, e.g. {_candidates(model)}",
        )
    return found


def _matching(model: nn.Module, pattern: str) -> Blocks:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UserError(
            "ckpt.blocks", f"{pattern!r} is no regular expression: {error}", "correct it"
        ) from error
    matches = {name: m for name, m in model.named_modules() if name and compiled.fullmatch(name)}
    outer = {
        name: module
        for name, module in matches.items()
        if not any(name.startswith(f"{other}.") for other in matches)
    }
    if not outer:
        raise UserError(
            "ckpt.blocks",
            f"no module's full name matches {pattern!r}",
            f"use ckpt.blocks=null, or names such as {_candidates(model)}",
        )
    for name, module in outer.items():
        if isinstance(module, nn.ModuleList | nn.ModuleDict):
            raise UserError(
                "ckpt.blocks",
                f"{name} is a list of modules, which is never called itself",
                f"name its members: '{name}\\.[^.]+'",
            )
    return outer


def _candidates(model: nn.Module) -> str:
    found = list(_repeated(model)) or [
        name for name, module in model.named_modules() if name and _is_composite(module)
    ]
    found = found or [name for name, _ in model.named_children()]
    return ", ".join(re.escape(name) for name in found[:6]) or "none: it has no modules"


def _is_composite(module: nn.Module) -> bool:
    """Has weights, and is more than one layer of torch's own."""
    own = not type(module).__module__.startswith("torch.nn.modules")
    return bool(module._modules or own) and next(module.parameters(), None) is not None


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _total(blocks: Blocks) -> int:
    return sum(map(_size, blocks.values()))


def _is_list(module: nn.Module) -> bool:
    """Only holds its members: it is never called, or calls them one after the other."""
    if isinstance(module, nn.ModuleList | nn.ModuleDict):
        return True
    if not isinstance(module, nn.Sequential):
        return False
    weighted = [m for m in module if next(m.parameters(), None) is not None]
    return len({type(m) for m in weighted}) == 1 and all(map(_is_composite, weighted))


def _level(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module, bool]]:
    """Composite modules directly below, lists looked through: (name, module, stands in a list).

    A module that the model holds several times comes several times.
    """
    listed = isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential)
    for key, child in module._modules.items():
        if child is None:
            continue
        name = f"{prefix}.{key}" if prefix else key
        if _is_list(child):
            yield from _level(child, name)
        elif _is_composite(child):
            yield name, child, listed


def _shape(module: nn.Module) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, tuple(p.shape)) for name, p in module.named_parameters())


def _search(module: nn.Module, prefix: str) -> Blocks:
    groups: dict[type[nn.Module], list[tuple[str, nn.Module, bool]]] = defaultdict(list)
    for entry in _level(module, prefix):
        groups[type(entry[1])].append(entry)
    found: Blocks = {}
    for group in groups.values():
        deeper: Blocks = {}
        for name, member, _ in group:
            deeper.update(_search(member, name))
        if len(group) == 1:
            found.update(deeper)
            continue
        members = {name: member for name, member, _ in group}
        alike = len({_shape(member) for member in members.values()}) == 1
        listed = all(in_list for _, _, in_list in group)
        # Alike and in a list: layers, whatever they hold (heads, experts). Else perhaps stages.
        stages = not (alike and listed) and _total(deeper) >= _MOST * _total(members)
        found.update(deeper if stages else members)
    return found


def _repeated(model: nn.Module) -> Blocks:
    found: Blocks = {}
    seen: set[int] = set()
    for name, module in _search(model, "").items():
        if id(module) not in seen:
            seen.add(id(module))
            found[name] = module
    weights: dict[type[nn.Module], int] = defaultdict(int)
    for module in found.values():
        weights[type(module)] += _size(module)
    largest = max(weights.values(), default=0)
    kept = {n: m for n, m in found.items() if weights[type(m)] >= _SMALL_CLASS * largest}
    order = {name: i for i, (name, _) in enumerate(model.named_modules(remove_duplicate=False))}
    return dict(sorted(kept.items(), key=lambda item: order[item[0]]))
