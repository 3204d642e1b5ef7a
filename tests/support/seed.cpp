#include "tests/support/seed.h"

#include <ATen/Context.h>

void composer::test::seed_random_numbers() { at::manual_seed(17); }
