/* Stands for CUPTI's header in tests. */
#define CUPTI_API_VERSION 990000
