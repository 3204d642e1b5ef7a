// For programs without libtorch, which have no random numbers to begin anew.
#include "tests/support/seed.h"

void composer::test::seed_random_numbers() {}
