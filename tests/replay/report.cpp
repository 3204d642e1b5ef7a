#include "tests/replay/report.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iomanip>
#include <ostream>
#include <sstream>

namespace composer::replay {
namespace {

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::EQUAL:
      return "equal";
    case Verdict::DIFFERENT:
      return "different as listed";
    case Verdict::UNSUPPORTED:
      return "not yet supported";
    case Verdict::WRONG:
      return "WRONG";
  }
  return "";
}

Outcome run_case(const Suite* suite, const Json& c, const Context& context) {
  if (!suite) return unsupported("no handler for this file");
  try {
    return suite->run(c, context);
  } catch (const Unsupported& what) {
    return unsupported(what.why);
  } catch (const std::exception& error) {
    return wrong(std::string("exception: ") + error.what());
  } catch (...) {
    return wrong("an exception that is not a std::exception");
  }
}

void add(FileReport& report, const Outcome& outcome) {
  report.count[outcome.verdict] += 1;
  if (outcome.verdict == Verdict::UNSUPPORTED) report.unsupported[outcome.text] += 1;
  for (const auto& rule : outcome.rules) report.rules[rule] += 1;
}

void add(FileReport& sum, const FileReport& more) {
  for (const auto& [verdict, cases] : more.count) sum.count[verdict] += cases;
  for (const auto& [why, cases] : more.unsupported) sum.unsupported[why] += cases;
  for (const auto& [rule, cases] : more.rules) sum.rules[rule] += cases;
  sum.seconds += more.seconds;
}

FileReport run_file(const std::filesystem::path& path, const Selection& selection, std::ostream& out) {
  const auto start = std::chrono::steady_clock::now();
  const Context context(path);
  FileReport report{.file = path.filename().string()};
  const auto suite = std::ranges::find(suites(), report.file, &Suite::file);
  for (const Json& c : context.cases()) {
    const std::string id = c.at("id");
    if (!selection.id.empty() && id != selection.id) continue;
    const Outcome outcome = run_case(suite == suites().end() ? nullptr : &*suite, c, context);
    add(report, outcome);
    if (outcome.verdict != Verdict::WRONG && !selection.verbose) continue;
    out << report.file << ' ' << id << ": " << to_string(outcome.verdict);
    for (const auto& rule : outcome.rules) out << ' ' << rule;
    out << (outcome.text.empty() ? "" : ": ") << outcome.text << std::endl;
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

constexpr Verdict kColumns[] = {Verdict::EQUAL, Verdict::DIFFERENT, Verdict::UNSUPPORTED, Verdict::WRONG};

int total(const FileReport& report) {
  int cases = 0;
  for (const auto& [verdict, count] : report.count) cases += count;
  return cases;
}

void print_row(FileReport report, std::ostream& out) {
  out << std::left << std::setw(26) << report.file << std::right << std::setw(7) << total(report);
  for (Verdict verdict : kColumns) out << std::setw(21) << report.count[verdict];
  out << std::setw(9) << std::fixed << std::setprecision(2) << report.seconds << '\n';
}

}  // namespace

std::vector<FileReport> run(const Selection& selection, std::ostream& out) {
  std::vector<std::filesystem::path> files;
  for (const auto& folder : selection.data)
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::ranges::stable_sort(files, {}, [](const auto& path) { return path.filename(); });
  std::vector<FileReport> reports;
  for (const auto& file : files) {
    if (!selection.file.empty() && file.filename() != selection.file && file.stem() != selection.file) continue;
    FileReport report = run_file(file, selection, out);
    if (total(report) == 0) continue;
    if (!reports.empty() && reports.back().file == report.file)
      add(reports.back(), report);
    else
      reports.push_back(std::move(report));
  }
  return reports;
}

void print_table(const std::vector<FileReport>& reports, std::ostream& out) {
  out << std::left << std::setw(26) << "file" << std::right << std::setw(7) << "cases";
  for (Verdict verdict : kColumns) out << std::setw(21) << to_string(verdict);
  out << std::setw(9) << "seconds" << '\n';
  FileReport sum{.file = "total"};
  for (const auto& report : reports) {
    print_row(report, out);
    for (const auto& [verdict, count] : report.count) sum.count[verdict] += count;
    sum.seconds += report.seconds;
  }
  print_row(sum, out);
  for (const auto& report : reports) {
    for (const auto& [rule, cases] : report.rules) {
      out << report.file << ": " << cases << " different as listed: " << rule << '\n';
    }
    for (const auto& [why, cases] : report.unsupported) {
      out << report.file << ": " << cases << " not yet supported: " << why << '\n';
    }
  }
}

std::vector<std::string> rules_not_needed(const std::vector<FileReport>& reports) {
  std::vector<std::string> names;
  for (const auto& suite : suites()) {
    const auto report = std::ranges::find(reports, suite.file, &FileReport::file);
    for (const auto& rule : suite.rules) {
      if (report == reports.end() || !report->rules.contains(rule.name)) names.push_back(suite.file + ": " + rule.name);
    }
  }
  return names;
}

std::string floor_of(const std::vector<FileReport>& reports) {
  std::ostringstream lines;
  for (FileReport report : reports)
    lines << report.file << ' ' << report.count[Verdict::EQUAL] + report.count[Verdict::DIFFERENT] << '\n';
  return lines.str();
}

std::string differences_page() {
  std::string page =
      "# Differences from Composer\n\n"
      "Where libcomposer deliberately does something else than MosaicML Composer 0.32.1. A case of `tests/golden` that "
      "these\n"
      "tables do not explain comes out as recorded (names, orders, counts and texts exactly, numbers within a "
      "tolerance,\n"
      "errors by their class) or uses something that is not there yet; `composer_replay` lists the latter.\n\n"
      "This page is written by `composer_replay --write-differences docs/internals/differences.md` from the rules "
      "beside the\n"
      "handlers in `tests/replay`, by which every case that differs is checked. A rule that no case needs fails the "
      "tests.\n";
  std::string area;
  for (const auto& suite : suites()) {
    if (suite.rules.empty()) continue;
    if (suite.area != area) {
      page += "\n## " + suite.area + "\n\n| What | Composer | libcomposer | Why |\n|---|---|---|---|\n";
      area = suite.area;
    }
    for (const auto& rule : suite.rules) {
      page += "| " + rule.applies_to + " | " + rule.composer_does + " | " + rule.we_do + " | " + rule.why + " |\n";
    }
  }
  return page;
}

}  // namespace composer::replay
