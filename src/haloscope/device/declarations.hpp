// The words by which a source declares its constants and kernels. Python reads the same lines of the source
// (declarations.py), so that a call names arguments and is checked.
//
//   KERNEL(name, arguments)         a function that Python launches, with the arguments by their names;
//   KERNEL_BOUNDS(bounds, name, arguments)     the same with the launch bounds of a GPU
//   IN(type, name)                  an argument: an array that the kernel reads; OUT: writes; INOUT: reads
//                                   and writes; IN_RESTRICT and so on: no other argument overlaps it
//   LONG(name), DOUBLE(name)        an argument: a number
//   CONSTANTS(TYPE(a), INT(b), REAL(c))     what is defined when the source is compiled
//   VALUE(type, name)               an argument: a struct, of which Python names the members

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
