// composer verify PATH...
#include <memory>
#include <ostream>

#include <CLI/CLI.hpp>

#include "composer/cli/contents.h"
#include "composer/cli/damage.h"
#include "composer/cli/text.h"
#include "composer/util/text_table.h"

namespace composer::cli {
namespace {

namespace fs = std::filesystem;

struct VerifyOptions {
  std::vector<std::string> paths;
  bool quiet = false, allow_unknown = false;
};

struct Counts {
  std::int64_t good = 0, bad = 0, unread = 0;
};

void print_findings(const std::vector<std::string>& lines, const char* word, Color color, const Console& console) {
  for (const std::string& line : lines)
    console.out << "  " << colored(console, color, word) << "  " << printable(line) << '\n';
}

void verify_one(const fs::path& path, const VerifyOptions& options, const Console& console, Counts& counts) {
  const auto [damage, unsupported] = findings_of(path, options.allow_unknown);
  print_findings(damage, "DAMAGED", Color::RED, console);
  print_findings(unsupported, "NOT READ", Color::YELLOW, console);
  ++(!damage.empty() ? counts.bad : !unsupported.empty() ? counts.unread : counts.good);
  if (!damage.empty() || !unsupported.empty() || options.quiet) return;
  const bool checked = kind_of(path) == Kind::CHECKPOINT || open_contents(path, options.allow_unknown).checksums;
  console.out << "  " << colored(console, Color::GREEN, "ok") << "  " << printable(path.string())
              << (checked ? "" : "  (no checksums: only its structure was checked)") << '\n';
}

// A dangling link is not damage: training resumes from the newest checkpoint.
void verify_folder(const fs::path& folder, const VerifyOptions& options, const Console& console, Counts& counts) {
  const auto all = checkpoints_below(folder);
  if (all.empty()) {
    console.out << "  " << colored(console, Color::RED, "EMPTY") << "  " << printable(folder.string())
                << ": has no checkpoints\n";
    ++counts.bad;
  }
  for (const fs::path& path : all) verify_one(path, options, console, counts);
  if (options.quiet) return;
  for (const fs::path& path : leftovers_below(folder))
    console.out << "  note  " << printable(path.string()) << " was left by a killed process\n";
}

int verify(const VerifyOptions& options, const Console& console) {
  for (const std::string& path : options.paths) kind_of(path);  // throws before any work
  Counts counts;
  for (const std::string& path : options.paths)
    if (kind_of(path) == Kind::SAVE_FOLDER)
      verify_folder(path, options, console, counts);
    else
      verify_one(path, options, console, counts);
  const auto [good, bad, unread] = counts;
  if (good + bad + unread > 1 || good == 0)
    console.out << util::grouped(good) << " whole, " << util::grouped(bad) << " damaged"
                << (unread > 0 ? ", " + util::grouped(unread) + " not read" : "") << '\n';
  return bad > 0 ? kBad : unread > 0 ? kError : kGood;
}

}  // namespace

Command add_verify(CLI::App& app) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand("verify", "reads every byte and reports damage");
  command->add_option("paths", options->paths, "checkpoints, save folders, files of weights")->required();
  command->add_flag("--quiet", options->quiet, "report only what is wrong");
  command->add_flag("--allow-unknown", options->allow_unknown,
                    "skip what this version cannot read: objects of unknown classes, tensors of unknown dtypes");
  command->footer(
      "Exit codes: 0 ok; 1 something is damaged, or a folder has no checkpoints; 2 an error, or this version cannot "
      "read something.");
  return {command, [options](const Console& console) { return verify(*options, console); }};
}

}  // namespace composer::cli
