#pragma once

// Throws composer::Error for what is not as it should be.
void check_own_algorithms();
