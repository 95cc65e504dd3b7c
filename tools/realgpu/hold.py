"""Hold memory of the first GPU: ``python -m tools.realgpu.hold MIB [--managed | --fault | --sms]``.

It needs the driver's libcuda alone, no CUDA toolkit. ``held MIB`` is printed once the memory is there, then it waits
for the end of its input. Exit code 3: the driver refused, and its word is printed. With ``--fault`` a kernel writes to
an address that is nobody's: the driver reports XID 31 and ends this context. With ``--sms`` the number of
multiprocessors that the process sees is printed as well.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Sequence
from typing import Final

_REFUSED: Final = 3
_MIB: Final = 1 << 20
#: cuMemAllocManaged: every stream may use it.
_ATTACH_GLOBAL: Final = 1
#: cuDeviceGetAttribute: multiprocessors. Under MPS those of the client.
_MULTIPROCESSORS: Final = 16
#: Writes a word to address 16.
_FAULTY_KERNEL: Final = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry fault() {
    .reg .u64 %a;
    .reg .u32 %v;
    mov.u64 %a, 16;
    mov.u32 %v, 1;
    st.global.u32 [%a], %v;
    ret;
}
"""


class Refused(Exception):
    """Raised where the driver refuses; the message is its function and its word."""


class Cuda:
    """The first GPU that this process sees, through the CUDA driver API."""

    def __init__(self) -> None:
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Refused(f"libcuda.so.1: {error}") from error
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._device = device
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def allocate(self, mib: int, *, is_managed: bool = False) -> None:
        """Take memory, and write to it. Raises Refused."""
        pointer, size = ctypes.c_uint64(), ctypes.c_size_t(mib * _MIB)
        if is_managed:
            self._call("cuMemAllocManaged", ctypes.byref(pointer), size, _ATTACH_GLOBAL)
        else:
            self._call("cuMemAlloc_v2", ctypes.byref(pointer), size)
        self._call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(1), size)
        self._call("cuCtxSynchronize")

    def total_mib(self) -> int:
        """Return the memory that the driver shows this process as the GPU's."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value // _MIB

    def multiprocessors(self) -> int:
        """Return how many of the GPU's this process sees. Raises Refused."""
        found = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(found), _MULTIPROCESSORS, self._device)
        return found.value

    def fault(self) -> None:
        """Write to an address that is nobody's. Raises Refused with the driver's word for it."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), _FAULTY_KERNEL)
        self._call("cuModuleGetFunction", ctypes.byref(function), module, b"fault")
        one, none = ctypes.c_uint(1), ctypes.c_void_p()
        self._call("cuLaunchKernel", function, one, one, one, one, one, one, 0, none, none, none)
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code != 0:
            word = ctypes.c_char_p()
            self._driver.cuGetErrorName(code, ctypes.byref(word))
            raise Refused(f"{name}: {(word.value or b'error').decode()} ({code})")


def main(arguments: Sequence[str]) -> int:
    """Hold, and wait."""
    parser = argparse.ArgumentParser(prog="python -m tools.realgpu.hold", description=__doc__)
    parser.add_argument("mib", type=int)
    parser.add_argument("--managed", action="store_true", help="memory that the driver may move to the host")
    parser.add_argument("--sms", action="store_true", help="print how many multiprocessors there are")
    parser.add_argument("--fault", action="store_true", help="then write to an address that is nobody's")
    wanted = parser.parse_args(arguments)
    try:
        cuda = Cuda()
        cuda.allocate(wanted.mib, is_managed=wanted.managed)
        sms = f" on {cuda.multiprocessors()} SMs" if wanted.sms else ""
        print(f"held {wanted.mib} of {cuda.total_mib()}{sms}", flush=True)
        if wanted.fault:
            cuda.fault()
    except Refused as why:
        print(f"refused {why}", flush=True)
        return _REFUSED
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
