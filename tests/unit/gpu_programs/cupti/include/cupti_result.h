/* Stands for CUPTI's header in tests. */
#ifndef FAKE_CUPTI_RESULT_H
#define FAKE_CUPTI_RESULT_H

#define CUPTIAPI
typedef enum {
  CUPTI_SUCCESS = 0,
  CUPTI_ERROR_INVALID_PARAMETER = 1,
  CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
  CUPTI_ERROR_NOT_SUPPORTED = 27,
  CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39
} CUptiResult;

CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char **text);

#endif
