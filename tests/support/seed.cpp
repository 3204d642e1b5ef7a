#include <ATen/Context.h>

#include "tests/support/seed.h"

void composer::test::seed_random_numbers() { at::manual_seed(17); }
