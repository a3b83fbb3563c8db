// Macros with which a source declares its constants and kernels. Python reads the same lines (declarations.py),
// passes arguments by name and checks them.
//
//   CONSTANTS(TYPE(a), INT(b), REAL(c))        the compile-time constants: a C++ type, an integer, a number
//   KERNEL(name, arguments)                    a function that Python launches
//   KERNEL_BOUNDS(bounds, name, arguments)     the same with launch bounds for GPUs
//
// Arguments:
//   IN(type, name)                  an array that the kernel reads; OUT: writes; INOUT: reads and writes
//   IN_RESTRICT, OUT_RESTRICT, INOUT_RESTRICT  the same; no other argument overlaps the array
//   LONG(name), DOUBLE(name)        a number
//   VALUE(type, name)               a struct; Python passes its members by name

#define KERNEL(name, ...) KERNEL_BOUNDS(, name, __VA_ARGS__)
#define IN(type, name) const type *name
#define IN_RESTRICT(type, name) const type *__restrict__ name
#define OUT(type, name) type *name
#define OUT_RESTRICT(type, name) type *__restrict__ name
#define INOUT(type, name) type *name
#define INOUT_RESTRICT(type, name) type *__restrict__ name
#define LONG(name) long name
#define DOUBLE(name) double name
#define VALUE(type, name) const type name
#define CONSTANTS(...)
