// Runs the cases and tells what came of them.
#pragma once
#include <filesystem>
#include <iosfwd>
#include <map>
#include <set>
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
  std::set<std::string> supported;                // the ids of cases that are equal, or different by a rule
  double seconds = 0;
};

// Runs all selected cases of the *.json files of the folders, those of one name together. What is wrong, and in verbose
// mode every case, goes to `out`.
std::vector<FileReport> run(const Selection& selection, std::ostream& out);

void print_table(const std::vector<FileReport>& reports, std::ostream& out);

// "time.json: rule_name" of the rules that no case needed.
std::vector<std::string> rules_not_needed(const std::vector<FileReport>& reports);

// The cases that were supported when the floor was written, one "time.json id" a line: what is wrong with these reports
// by that, one line each. A case that is missing has lost its support; one too many is not protected yet.
std::string floor_of(const std::vector<FileReport>& reports);
std::vector<std::string> compare_with_floor(const std::vector<FileReport>& reports, const std::string& floor);

// The text of docs/differences.md.
std::string differences_page();

}  // namespace composer::replay
