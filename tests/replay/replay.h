// Recorded cases (tests/golden) are replayed through the library and compared with what Composer did.
//
// To add a handler for FILE.json, write tests/replay/FILE.cpp with
//   - `Outcome run(const Json& c, const Context& context)`, which does what the case `c` says through the library's
//     public API, writes what came out in the form of the recording, and ends with
//         return judge(c, c.at("result"), got, rules());
//     For a kind of case, or an option, that the library does not know yet: `return unsupported("why")`. Exceptions
//     that leave it count as wrong, so errors that are recorded as results are caught by the handler;
//   - `const Rules& rules()`, the deliberate differences. A rule looks at what the case configures, never at its id,
//   and
//     turns the recorded result into what we do instead; a case counts as different only if we do exactly that. A case
//     that a rule matches but that came out as recorded is equal. `ctest` fails on a rule that no case needs;
//   - `Suite FILE_suite() { return {"FILE.json", "Heading in docs/internals/differences.md", run, rules()}; }`,
// and add it to the table in handlers.cpp and to CMakeLists.txt. After a change of rules:
//   composer_replay --write-differences docs/internals/differences.md
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>

#include "tests/replay/compare.h"

namespace composer::replay {

// A file of recorded cases.
class Context {
 public:
  using Tensors = std::map<std::string, at::Tensor>;

  // Throws if the file cannot be read or is no file of recorded cases.
  explicit Context(const std::filesystem::path& file);

  const Json& cases() const { return document_.at("cases"); }
  // A top level value, such as the columns of a table.
  const Json& top(const std::string& key) const { return document_.at(key); }
  // The tensors of STEM.safetensors in the same folder, read when first asked for. Without a stem: the file's own.
  const Tensors& tensors(std::string stem = "") const;

 private:
  std::filesystem::path file_;
  Json document_;
  mutable std::map<std::string, Tensors> tensors_;
};

struct Suite {
  std::string file, area;
  Outcome (*run)(const Json& c, const Context& context);
  Rules rules;
};

// One for each file that has a handler.
const std::vector<Suite>& suites();

}  // namespace composer::replay
