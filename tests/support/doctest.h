#pragma once
// doctest next to libtorch, which has a CHECK that ends the program: include this one, in whatever order.
#if __has_include(<c10/util/Logging.h>)  // not for base_tests, which are compiled without libtorch
#include <c10/util/Logging.h>
#endif

#undef CHECK
#undef CHECK_EQ
#undef CHECK_GE
#undef CHECK_GT
#undef CHECK_LE
#undef CHECK_LT
#undef CHECK_NE

#include <doctest/doctest.h>
