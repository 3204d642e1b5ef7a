#pragma once

// Symbols are hidden by default. Everything that users call or derive from has this attribute.
#define COMPOSER_EXPORT __attribute__((visibility("default")))
