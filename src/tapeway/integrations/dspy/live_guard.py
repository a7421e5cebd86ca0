"""Refuses the calls of DSPy that reach a live service without asking the cache.

An LM with `cache=False`, a subclass of `BaseLM` and an embedder without caching reach the network
whatever `dspy.cache` is. The last step before the network is patched: in DSPy 3.4 all LMs share one,
in older versions each call is checked.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import dspy  # type: ignore[import-not-found, unused-ignore]  # it has an environment of its own
from dspy.clients import base_lm, embedding  # type: ignore[import-not-found, unused-ignore]

Refusal = Callable[[str], Exception]
"""Makes the error for a call from its description."""


@contextmanager
def refuse_live_calls(refusal: Refusal) -> Iterator[None]:
    """Refuse calls that would reach a live service without the cache, until the end of the block."""
    with ExitStack() as patches:
        execution = _execution()
        if execution is not None and hasattr(execution, "_engine"):
            patches.enter_context(_patched(execution, "_engine", _guarded_engine, refusal))
        else:
            for name in ("__call__", "acall"):
                patches.enter_context(_patched(base_lm.BaseLM, name, _guarded_call, refusal))
        for name in ("_compute_embeddings", "_acompute_embeddings"):
            patches.enter_context(_patched(embedding, name, _guarded_embedding, refusal))
        yield


@contextmanager
def _patched(owner: Any, name: str, guard: Any, refusal: Refusal) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, functools.wraps(before)(guard(before, refusal)))
    try:
        yield
    finally:
        setattr(owner, name, before)


def _guarded_engine(before: Any, refusal: Refusal) -> Any:
    def engine(lm: Any, call: Any, asynchronous: bool) -> Any:
        if not _is_dummy(lm):
            raise refusal(f"{_named(lm)} asks its service without asking the cache")
        return before(lm, call, asynchronous)

    return engine


def _guarded_call(before: Any, refusal: Refusal) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = type(self)
        is_plain = isinstance(self, dspy.LM) and (own.forward, own.aforward) == (
            dspy.LM.forward,
            dspy.LM.aforward,
        )
        if not _is_dummy(self):
            if not is_plain:
                raise refusal(f"{_named(self)} is a class of its own, which asks no cache")
            if not kwargs.get("cache", self.cache):
                raise refusal(f"{_named(self)} is asked with cache=False")
        return before(self, *args, **kwargs)

    return call


def _guarded_embedding(before: Any, refusal: Refusal) -> Any:
    def compute(model: Any, *args: Any, **kwargs: Any) -> Any:
        # A function of the program is not a service.
        if isinstance(model, str):
            raise refusal(f"the embedder {model} is asked with caching=False")
        return before(model, *args, **kwargs)

    return compute


def _execution() -> Any:
    try:
        from dspy.clients import execution  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    return execution


def _is_dummy(lm: Any) -> bool:
    from dspy.utils.dummies import DummyLM  # type: ignore[import-not-found, unused-ignore]

    return isinstance(lm, DummyLM)


def _named(lm: Any) -> str:
    return f"{type(lm).__name__}({getattr(lm, 'model', '')})"
