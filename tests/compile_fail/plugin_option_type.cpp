// error: an option is a std::string, std::filesystem::path, double, bool, std::int64_t
#include <vector>

#include "composer/core/entry.h"

struct Options {
  int size = 1;
};
std::vector<composer::Option<Options>> options() { return {composer::option("size", &Options::size)}; }
