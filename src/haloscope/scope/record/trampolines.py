"""Writes the trampolines: MPI's functions as the preloaded library offers them, in assembly."""

from __future__ import annotations

from collections.abc import Sequence

from haloscope.scope.record.prototypes import functions

_TRAMPOLINES = """\
// Generated: the names of MPI functions, each leading to where its slot points.
#if !defined(__x86_64__)
#error "programs are measured on x86-64 only"
#endif
  .text
"""

# hs_mpi_thread.fortran_site becomes the address that the call returns to.
_NOTE_SITE = """\
  movq (%rsp), %r11
  movq hs_mpi_thread@gottpoff(%rip), %r10
  movq %r11, %fs:8(%r10)
"""

_FIRST_CALL = """\
  // The first call of a function: ask where it leads, then go there as if nothing had been.
  .p2align 4
first_call:
  push %rax
  push %rdi
  push %rsi
  push %rdx
  push %rcx
  push %r8
  push %r9
  movq %rsp, %rax
  subq $160, %rsp
  andq $-16, %rsp
  movq %rax, 144(%rsp)
  movups %xmm0, 0(%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  movl %r11d, %edi
  call hs_first_call
  movq %rax, %r11
  movups 0(%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  movq 144(%rsp), %rsp
  pop %r9
  pop %r8
  pop %rcx
  pop %rdx
  pop %rsi
  pop %rdi
  pop %rax
  jmp *%r11
"""


def exported() -> Sequence[str]:
    """Names of the C functions that the preloaded library offers: those that every MPI has."""
    return [f"MPI_{function.name}" for function in functions() if function.everywhere]


def exported_to_fortran() -> Sequence[str]:
    """Names of Fortran's functions that the preloaded library offers.

    They note where the program called them, and MPI's Fortran library does the rest. Those that
    MPI begins with may be the first that a program calls, under whatever name its compiler gives.
    """
    plain = [function.name.lower() for function in functions() if not function.name.endswith("_c")]
    names = [f"mpi_{name}{form}" for name in plain for form in ("_", "_f08_", "_f08ts_")]
    for first in ("mpi_init", "mpi_init_thread"):
        names += [first, f"{first}__", first.upper()]
    return names


def trampolines() -> str:
    """Assembly source of the preloaded library's trampolines, for x86-64."""
    names = [*exported(), *exported_to_fortran()]
    parts = [_TRAMPOLINES]
    for number, name in enumerate(names):
        noting = "" if name.startswith("MPI_") and not name.isupper() else _NOTE_SITE
        parts.append(
            f"  .globl {name}\n  .type {name}, @function\n  .p2align 3\n{name}:\n{noting}"
            f"  jmp *(hs_slots + {8 * number})(%rip)\n  .size {name}, . - {name}\n"
            f"first_{number}:\n  movl ${number}, %r11d\n  jmp first_call\n"
        )
    parts.append(_FIRST_CALL)
    parts.append("  .data\n  .hidden hs_slots\n  .globl hs_slots\n  .p2align 3\nhs_slots:\n")
    parts += [f"  .quad first_{number}\n" for number in range(len(names))]
    parts.append("  .section .rodata\n  .hidden hs_names\n  .globl hs_names\nhs_names:\n")
    parts += [f'  .asciz "{name}"\n' for name in names]
    parts.append('  .byte 0\n  .section .note.GNU-stack,"",@progbits\n')
    return "".join(parts)
