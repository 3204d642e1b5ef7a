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
  std::vector<std::filesystem::path> data;  // folders
  std::string file, id;                     // empty: all
  bool verbose = false;
};

struct FileReport {
  std::string file;
  std::map<Verdict, int> count;
  std::map<std::string, int> unsupported, rules;  // how many cases, by reason and by rule
  double seconds = 0;
};

// Runs all selected cases of the *.json files of the folders, those of one name together. What is wrong, and in verbose
// mode every case, goes to `out`.
std::vector<FileReport> run(const Selection& selection, std::ostream& out);

void print_table(const std::vector<FileReport>& reports, std::ostream& out);

// "time.json: rule_name" of the rules that no case needed.
std::vector<std::string> rules_not_needed(const std::vector<FileReport>& reports);

// How many cases of each file are equal, or different by a rule, one "time.json 200" a line: the floor, which is
// written down, so that no case loses its support, and none goes, unnoticed.
std::string floor_of(const std::vector<FileReport>& reports);

// The text of docs/internals/differences.md.
std::string differences_page();

}  // namespace composer::replay
