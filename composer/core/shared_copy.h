#pragma once
#include <memory>
#include <span>

#include "composer/core/export.h"
#include "composer/core/log_records.h"

namespace composer {

class KeptEntries;

// While a Logger hands out these entries, on this thread: the place where its destinations share one copy of them, made
// by the first that needs it. Otherwise nullptr.
COMPOSER_EXPORT std::shared_ptr<KeptEntries>* shared_copy(std::span<const LogEntry> entries);

}  // namespace composer
