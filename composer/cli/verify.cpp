// composer verify PATH...
#include <memory>
#include <ostream>

#include <CLI/CLI.hpp>

#include "composer/cli/contents.h"
#include "composer/cli/damage.h"
#include "composer/cli/text.h"

namespace composer::cli {
namespace {

namespace fs = std::filesystem;

struct VerifyOptions {
  std::vector<std::string> paths;
  bool quiet = false;
};

struct Counts {
  std::int64_t good = 0, bad = 0;
};

void verify_one(const fs::path& path, bool quiet, const Console& console, Counts& counts) {
  const std::vector<std::string> wrong = damage_of(path);
  ++(wrong.empty() ? counts.good : counts.bad);
  for (const std::string& line : wrong)
    console.out << "  " << colored(console, Color::RED, "DAMAGED") << "  " << line << '\n';
  if (!wrong.empty() || quiet) return;
  std::string note;
  if (const Kind kind = kind_of(path); kind == Kind::SAFETENSORS && !open_contents(path).checksums)
    note = "  (no checksums: only its structure was checked)";
  console.out << "  " << colored(console, Color::GREEN, "ok") << "  " << printable(path.string()) << note << '\n';
}

// A link that leads nowhere is no damage: training goes on from the newest checkpoint.
void verify_folder(const fs::path& folder, const VerifyOptions& options, const Console& console, Counts& counts) {
  const auto all = checkpoints_below(folder);
  if (all.empty()) {
    console.out << "  " << colored(console, Color::RED, "EMPTY") << "  " << printable(folder.string())
                << ": has no checkpoints\n";
    ++counts.bad;
  }
  for (const fs::path& path : all) verify_one(path, options.quiet, console, counts);
  if (options.quiet) return;
  for (const fs::path& path : leftovers_below(folder))
    console.out << "  note  " << printable(path.string()) << " was left by a killed process\n";
}

int verify(const VerifyOptions& options, const Console& console) {
  for (const std::string& path : options.paths) kind_of(path);  // an error before any work
  Counts counts;
  for (const std::string& path : options.paths)
    if (kind_of(path) == Kind::SAVE_FOLDER)
      verify_folder(path, options, console, counts);
    else
      verify_one(path, options.quiet, console, counts);
  if (counts.good + counts.bad > 1 || counts.bad > 0)
    console.out << count_text(counts.good) << " whole, " << count_text(counts.bad) << " damaged\n";
  return counts.bad == 0 ? kGood : kBad;
}

}  // namespace

Command add_verify(CLI::App& app) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand("verify", "reads every byte and reports damage");
  command->add_option("paths", options->paths, "checkpoints, save folders, files of weights")->required();
  command->add_flag("--quiet", options->quiet, "report only damage");
  command->footer("Exit codes: 0 ok; 1 something is damaged, or a folder has no checkpoints; 2 an error.");
  return {command, [options](const Console& console) { return verify(*options, console); }};
}

}  // namespace composer::cli
