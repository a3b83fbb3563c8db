/* Types of CUDA's runtime, for the fake alone: the tracer brings its own stand-in. */
