#define DOCTEST_CONFIG_NO_POSIX_SIGNALS  // its handlers would look like a program's own
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
