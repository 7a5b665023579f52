"""Makes a server of TVM's RPC give a tracker up at once: TVM waits a minute for it."""

from __future__ import annotations


def give_up_soon() -> None:
    from tvm.rpc import base

    base.connect_with_retry.__defaults__ = (0.5, 0.1)
