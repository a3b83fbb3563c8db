/* Opens the MPI library that its argument names and calls it by what dlsym tells; ends with code 3. */
#include <dlfcn.h>
#include <stddef.h>

int main(int argc, char **argv) {
  void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) return 1;
  int (*init)(int *, char ***) = (int (*)(int *, char ***))dlsym(library, "MPI_Init");
  int (*finalize)(void) = (int (*)(void))dlsym(library, "MPI_Finalize");
  return init(&argc, &argv) || finalize() ? 1 : 3;
}
