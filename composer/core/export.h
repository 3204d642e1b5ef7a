#pragma once

// Symbols are hidden by default; what users call or derive from carries this.
#define COMPOSER_EXPORT __attribute__((visibility("default")))
