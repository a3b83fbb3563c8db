"""Builds the GPU tracer for the installed CUPTI, and the environment in which programs load it.

CUDA's driver loads the library that ``CUDA_INJECTION64_PATH`` names when a program initialises it,
NVTX the one of ``NVTX_INJECTION64_PATH``. CUPTI comes with CUDA's toolkit, or as wheels
(nvidia-cuda-cupti, and nvidia-cuda-runtime for ``cuda.h``). Which calls of CUDA are looked at, and
where they name their stream, is read from CUPTI's own headers: they differ from version to version.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from haloscope.device.jit import Cache, CompileError
from haloscope.errors import MachineError
from haloscope.scope.record.build import EVENTS_HEADER, compile_library

_HERE = Path(__file__).parent
_ALWAYS = (_HERE / "gpu_nvtx.c",)
_PRESENT = tuple(_HERE / name for name in ("gpu_cupti.c", "gpu_calls.c"))
_HEADERS = (
    *(_HERE / n for n in ("gpu_tracer.h", "gpu_calls.h", "recorder.h", "stub.h")),
    EVENTS_HEADER,
)
_FLAGS = ("-fvisibility=hidden", "-pthread", "-ldl")
_NAMED_BY_USER = "HALOSCOPE_CUPTI"
_INJECTED = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
_INSTALL = (
    "there is no CUPTI; install the CUDA toolkit, run pip install nvidia-cuda-cupti "
    "nvidia-cuda-runtime, or set HALOSCOPE_CUPTI to the folder of CUPTI"
)

_LIBRARY = re.compile(r"libcupti\.so\.(\d+)")
_VERSION = re.compile(r"#define\s+CUPTI_API_VERSION\s+(\d+)")
# Records whose layout grows from version to version: the newest is the one of this CUPTI.
_RECORDS = {
    "GPU_KERNEL": "CUpti_ActivityKernel",
    "GPU_MEMCPY": "CUpti_ActivityMemcpy",
    "GPU_MEMCPY_PEER": "CUpti_ActivityMemcpyPtoP",
    "GPU_MEMSET": "CUpti_ActivityMemset",
    "GPU_OVERHEAD": "CUpti_ActivityOverhead",
}
_MOST_HEADER_BYTES = 1 << 24

# The first pattern that matches a function's plain name says what it does: role, starts work.
_ROLES: tuple[tuple[str, str, bool], ...] = (
    (r"cu(da)?Launch(CooperativeKernel(MultiDevice)?|Kernel(ExC?)?|Grid(Async)?)?", "LAUNCH", True),
    (r"cu(da)?GraphLaunch", "LAUNCH", True),
    (r"cu(da)?Mem(cpy|set)\w*Async|cu(da)?MemPrefetch\w*Async|cu(da)?Memset\w*", "COPY", True),
    (r"cu(da)?Memcpy\w*", "SYNC", True),
    (r"cu(da)?(Stream|Ctx|Device|Event|Thread)Synchronize", "SYNC", False),
    (r"cuEventRecord(WithFlags)?", "RECORD", False),
    (r"cu(da)?(Mem(Alloc|Free|Host|Create|Release|Map|Unmap)|Malloc|Free|Host)\w*", "MEMORY", False),
    (r"cu(da)?(Module|Library)(Load|Unload)\w*|cuLink(Create|Complete|Add)\w*", "MEMORY", False),
    (r"cuInit|cuda(Set|Init)Device", "MEMORY", False),
    (r"cuCtx(Create|Destroy)|cuDevicePrimaryCtx(Retain|Release|Reset)", "MEMORY", False),
    (r"cu(da)?Graph(Instantiate\w*|Exec(Destroy|Update))|cu(da)?Stream(Begin|End)Capture\w*",
     "MEMORY", False),
    (r"cudaDeviceReset", "MEMORY", False),
)  # fmt: skip
_NOT_MEMORY = re.compile(r"cu(da)?(MemHostGet|MemMapArray|HostGet|MemFreeze)\w*")
_SUFFIX = re.compile(r"(_v\d+|_ptsz|_ptds)+$")


@dataclass(frozen=True)
class Cupti:
    """A CUPTI that can be compiled with."""

    includes: tuple[Path, ...]  # Folders of headers: CUPTI's own first, then that of ``cuda.h``
    library: Path  # Its library
    version: int  # The number that its header gives

    @property
    def major(self) -> int:
        """Major version of CUDA."""
        match = _LIBRARY.fullmatch(self.library.name)
        return int(match[1]) if match else 0


def _roots(environment: Mapping[str, str]) -> Iterator[Path]:
    """Folders that CUPTI may lie in, the likeliest first."""
    for base in dict.fromkeys(sys.path):
        wheels = Path(base) / "nvidia"
        if base and wheels.is_dir():
            yield from sorted(wheels.glob("cu[0-9]*"), reverse=True)
            yield wheels / "cuda_cupti"
    for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        if environment.get(name):
            yield Path(environment[name])
    nvcc = shutil.which("nvcc", path=environment.get("PATH"))
    if nvcc:
        yield Path(nvcc).resolve().parents[1]
    yield Path("/usr/local/cuda")
    yield from sorted(Path("/usr/local").glob("cuda-*"), reverse=True)
    yield Path("/usr")


def _first(folders: Sequence[Path], name: str) -> Path | None:
    return next((folder for folder in folders if (folder / name).is_file()), None)


def _library_in(folders: Sequence[Path]) -> Path | None:
    """The library under the name that programs know it by: one number."""
    for folder in folders:
        libraries = [path for path in folder.glob("libcupti.so.*") if _LIBRARY.fullmatch(path.name)]
        short = [path for path in libraries if len(path.suffix) <= 3]
        if short:
            return max(short, key=lambda path: int(path.suffix[1:]))
    return None


def _cupti_in(root: Path) -> Cupti | None:
    targets = sorted(root.glob("targets/*-linux*"))
    headers = [root / "include", root / "extras/CUPTI/include", *(t / "include" for t in targets)]
    libraries = [
        *(root / name for name in ("lib", "lib64", "extras/CUPTI/lib64")),
        *(target / "lib" for target in targets),
        *sorted(root.glob("lib/*-linux-gnu")),
    ]
    own, library = _first(headers, "cupti_activity.h"), _library_in(libraries)
    # The wheels for CUDA 12 have a folder for each part of the toolkit.
    cuda = _first([*headers, root.parent / "cuda_runtime" / "include"], "cuda.h")
    if own is None or library is None or cuda is None:
        return None
    version = _VERSION.search(_read(own / "cupti_version.h"))
    return Cupti(tuple(dict.fromkeys((own, cuda))), library, int(version[1]) if version else 0)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_HEADER_BYTES:
            return ""
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _driver_version() -> int:
    """Version of CUDA that the driver here supports, such as 13000; 0 without a driver."""
    try:
        version = ctypes.c_int()
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0
    return version.value


def find_cupti(environment: Mapping[str, str] | None = None) -> Cupti | None:
    """Find the CUPTI to measure GPUs with.

    `environment`: variables to go by; this process's own by default.
    """
    # ``HALOSCOPE_CUPTI`` names a folder with ``include`` and ``lib``. Otherwise the wheels of this
    # Python and the places of CUDA's toolkit are looked at, and of several the one for the CUDA of
    # this machine's driver is taken.
    variables = os.environ if environment is None else environment
    named = variables.get(_NAMED_BY_USER)
    if named:
        library = _cupti_in(Path(named).absolute())
        if library is None:
            raise MachineError(
                f"{named} does not hold CUPTI",
                location=_NAMED_BY_USER,
                allowed="a folder with include/cupti_activity.h, include/cuda.h and "
                "lib/libcupti.so.<number>",
                remedy=f"set {_NAMED_BY_USER} to the folder of CUPTI, or unset it",
            )
        return library
    libraries = [library for root in _roots(variables) if (library := _cupti_in(root)) is not None]
    if not libraries:
        return None
    driver = _driver_version() // 1000
    return next((library for library in libraries if library.major == driver), libraries[0])


def role_of_call(name: str) -> tuple[str, bool] | None:
    """Role of a function of CUDA, and whether it starts work; None if it is left out."""
    plain = _SUFFIX.sub("", name)
    for pattern, role, starts in _ROLES:
        if re.fullmatch(pattern, plain):
            return None if role == "MEMORY" and _NOT_MEMORY.fullmatch(plain) else (role, starts)
    return None


def _listed(header: str, domain: str) -> list[tuple[str, int]]:
    """Functions that a header of callback numbers lists."""
    names = re.findall(rf"\bCUPTI_{domain}_TRACE_CBID_(cu\w+)\s*=\s*(\d+)", header)
    return [(name, int(number)) for name, number in names]


def _getters(name: str, body: str) -> tuple[str, str, str]:
    """Functions that take stream and event from a call's parameters: their text and their names."""
    text, stream, event = [], "NULL", "NULL"
    parameters = f"((const {name}_params *)parameters)"
    if re.search(r"\bCUstream\s+hStream\s*;", body):
        stream, value = f"stream_{name}", f"{parameters}->hStream"
    elif re.search(r"\bCUlaunchConfig\s*\*\s*config\s*;", body):
        stream, value = (
            f"stream_{name}",
            f"{parameters}->config ? {parameters}->config->hStream : NULL",
        )
    if stream != "NULL":
        text.append(f"static void *{stream}(const void *parameters) {{ return {value}; }}")
    if re.search(r"\bCUevent\s+hEvent\s*;", body):
        event = f"event_{name}"
        text.append(
            f"static void *{event}(const void *parameters) {{ return {parameters}->hEvent; }}"
        )
    return "\n".join(text), stream, event


def call_tables(driver: str, runtime: str, parameters: str) -> str:
    """Write the C tables of the calls that are looked at."""
    bodies = {
        name: body
        for body, name in re.findall(
            r"typedef\s+struct\s+\w+_params_st\s*\{([^}]*)\}\s*(\w+)_params\s*;", parameters
        )
    }
    lines = [
        "/* Written by gpu_build.py from CUPTI's headers. */",
        "#define __CUDA_API_VERSION_INTERNAL",
        "#include <cuda.h>",
        "#include <stddef.h>",
        "#include <generated_cuda_meta.h>",
        '#include "gpu_tracer.h"',
    ]
    for domain, header in (("driver", driver), ("runtime", runtime)):
        rows = []
        for name, number in _listed(header, domain.upper()):
            call_role = role_of_call(name)
            if call_role is None:
                continue
            role, starts = call_role
            stream = event = "NULL"
            if domain == "driver" and name in bodies and role != "MEMORY":
                text, stream, event = _getters(name, bodies[name])
                lines.append(text)
            per_thread = int(name.endswith(("_ptsz", "_ptds")) or "_ptsz_" in name)
            shown = _SUFFIX.sub("", name)
            rows.append(
                f'    {{{number}, GPU_{role}, "{shown}", {int(starts)}, {per_thread}, '
                f"{stream}, {event}}},"
            )
        lines += [
            f"const struct gpu_call gpu_{domain}_calls[] = {{",
            *rows,
            '    {0, GPU_MEMORY, "", 0, 0, NULL, NULL}};',
            f"const unsigned gpu_{domain}_call_count = {len(rows)};",
        ]
    return "\n".join(line for line in lines if line) + "\n"


def _newest(header: str, prefix: str) -> str | None:
    """The newest layout of a record that a header defines."""
    numbers: list[str] = re.findall(rf"\}}\s*{prefix}(\d*)\s*;", header)
    if not numbers:
        return None
    return prefix + max(numbers, key=lambda number: int(number or 0))


def _quoted(text: str) -> str:
    """A text as a C string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _with_cupti(cupti: Cupti, cache: Cache | None) -> Path:
    own = cupti.includes[0]
    names = ("cupti_driver_cbid.h", "cupti_runtime_cbid.h", "generated_cuda_meta.h")
    table = call_tables(*(_read(own / name) for name in names))
    activity = _read(own / "cupti_activity.h")
    layouts = {name: _newest(activity, prefix) for name, prefix in _RECORDS.items()}
    missing = [_RECORDS[name] for name, layout in layouts.items() if layout is None]
    if missing:
        raise MachineError(f"the headers do not define {missing[0]}", location=str(own))
    settings = "\n".join(
        [
            *(f"#define {name} {layout}" for name, layout in layouts.items()),
            f"#define HS_CUPTI_LIBRARY {_quoted(str(cupti.library))}",
            f"#define HS_CUPTI_NAME {_quoted(cupti.library.name)}",
        ]
    )
    return compile_library(
        (*_ALWAYS, *_PRESENT),
        _HEADERS,
        generated=[
            ("gpu_call_tables.c", table),
            ("gpu_settings.h", f"/* Written by gpu_build.py. */\n{settings}\n"),
            # CUPTI's headers ask for it and use nothing of it; the runtime's own needs more wheels.
            ("builtin_types.h", "/* Types of CUDA's runtime, of which none is used here. */\n"),
        ],
        flags=(
            *(f"-I{folder}" for folder in cupti.includes),
            "-include",
            "gpu_settings.h",
            *_FLAGS,
        ),
        identity=f"{cupti.library}\n{cupti.version}",
        cache=cache,
    )


def _without_cupti(reason: str, cache: Cache | None) -> Path:
    settings = f"/* Written by gpu_build.py. */\n#define HS_NO_CUPTI {_quoted(reason)}\n"
    return compile_library(
        _ALWAYS,
        _HEADERS,
        generated=[("gpu_settings.h", settings)],
        flags=("-include", "gpu_settings.h", *_FLAGS),
        cache=cache,
    )


def gpu_library(environment: Mapping[str, str] | None = None, cache: Cache | None = None) -> Path:
    """The library that records GPUs, compiled where it is not in the cache.

    Without CUPTI it records the ranges of NVTX, and says in programs that use a GPU that there is
    none.
    """
    # `environment`: variables to go by; this process's own by default.
    # `cache`: where compiled files are kept; the user's own by default.
    cupti = find_cupti(environment)
    if cupti is None:
        return _without_cupti(_INSTALL, cache)
    try:
        return _with_cupti(cupti, cache)
    except (CompileError, MachineError) as error:
        first = str(error).splitlines()[0]
        reason = f"the CUPTI in {cupti.includes[0]} cannot be used ({first})"
        return _without_cupti(reason, cache)


def gpu_environment(
    base: Mapping[str, str] | None = None, cache: Cache | None = None
) -> dict[str, str]:
    """Give the variables that have the GPUs of a program recorded.

    They are of use beside those of :func:`haloscope.scope.record.measure.environment` only. A variable
    that names another library stays as it is: another tool measures then.
    """
    # `base`: the environment as it is; this process's own by default.
    # `cache`: where compiled files are kept; the user's own by default.
    variables = os.environ if base is None else base
    library = str(gpu_library(variables, cache))
    # It is this one where a measured command starts ranks that are measured.
    wanted = [name for name in _INJECTED if variables.get(name, "") in ("", library)]
    if _INJECTED[0] not in wanted:
        print(
            f"haloscope: {_INJECTED[0]} is set for another tool; GPUs are not measured (only the "
            "CPU side)",
            file=sys.stderr,
        )
    return dict.fromkeys(wanted, library)
