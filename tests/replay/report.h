// Runs the cases and tells what came of them.
#pragma once
#include <filesystem>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "tests/replay/replay.h"

namespace composer::replay {

struct Selection {
  std::filesystem::path data;
  std::string file, id;  // empty: all
  bool verbose = false;
};

struct FileReport {
  std::string file;
  std::map<Verdict, int> count;
  std::map<std::string, int> unsupported, rules;  // how many cases, by reason and by rule
  double seconds = 0;
};

// Runs all selected cases of the *.json files of the folder. What is wrong, and in verbose mode every case, goes to
// `out`.
std::vector<FileReport> run(const Selection& selection, std::ostream& out);

void print_table(const std::vector<FileReport>& reports, std::ostream& out);

// "time.json: rule_name" of the rules that no case needed.
std::vector<std::string> rules_not_needed(const std::vector<FileReport>& reports);

// The text of docs/differences.md.
std::string differences_page();

}  // namespace composer::replay
