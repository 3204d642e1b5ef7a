#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "tests/replay/report.h"
#include "tests/support/places.h"

namespace composer::replay {
namespace {

constexpr const char* kUsage =
    "composer_replay [--data FOLDER]... [--file NAME] [--case ID] [-v] [--every-rule-needed]\n"
    "                [--floor FILE | --write-floor FILE]\n"
    "composer_replay --write-differences FILE | --check-differences FILE\n";

struct Arguments {
  Selection selection;
  bool every_rule_needed = false;
  std::string write_differences, check_differences, floor, write_floor;
};

// Throws std::runtime_error for what is no option of ours.
Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&] {
      if (++i == argc) throw std::runtime_error(option + " needs a value\n" + kUsage);
      return std::string(argv[i]);
    };
    if (option == "--data")
      arguments.selection.data.push_back(std::filesystem::absolute(value()));  // cases change the folder
    else if (option == "--file")
      arguments.selection.file = value();
    else if (option == "--case")
      arguments.selection.id = value();
    else if (option == "-v")
      arguments.selection.verbose = true;
    else if (option == "--every-rule-needed")
      arguments.every_rule_needed = true;
    else if (option == "--floor")
      arguments.floor = value();
    else if (option == "--write-floor")
      arguments.write_floor = value();
    else if (option == "--write-differences")
      arguments.write_differences = value();
    else if (option == "--check-differences")
      arguments.check_differences = value();
    else
      throw std::runtime_error("unknown option " + option + "\n" + kUsage);
  }
  if (arguments.selection.data.empty()) arguments.selection.data = {test::repository() / "tests/golden"};
  return arguments;
}

int write(const std::string& file, const std::string& text) {
  std::ofstream out(file);
  out << text << std::flush;
  return out ? 0 : 1;
}

std::string read(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot read " + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

int check_differences(const std::string& file) {
  if (read(file) == differences_page()) return 0;
  std::cerr << file << " is not current: composer_replay --write-differences " << file << '\n';
  return 1;
}

int replay(const Arguments& arguments) {
  const auto reports = run(arguments.selection, std::cout);
  if (reports.empty()) {
    std::cerr << "no such case in " << arguments.selection.data.front() << '\n';
    return 1;
  }
  print_table(reports, std::cout);
  bool good = true;
  for (const auto& report : reports) good &= !report.count.contains(Verdict::WRONG);
  if (arguments.every_rule_needed) {
    for (const auto& rule : rules_not_needed(reports)) {
      std::cout << "no case needs the rule " << rule << '\n';
      good = false;
    }
  }
  if (!arguments.floor.empty() && read(arguments.floor) != floor_of(reports)) {
    std::cout << "other numbers of cases are supported than in " << arguments.floor
              << "; if they are more, write them down with --write-floor:\n"
              << floor_of(reports);
    good = false;
  }
  if (good && !arguments.write_floor.empty()) return write(arguments.write_floor, floor_of(reports));
  return good ? 0 : 1;
}

}  // namespace
}  // namespace composer::replay

int main(int argc, char** argv) {
  using namespace composer::replay;
  try {
    const Arguments arguments = parse(argc, argv);
    if (!arguments.write_differences.empty()) return write(arguments.write_differences, differences_page());
    if (!arguments.check_differences.empty()) return check_differences(arguments.check_differences);
    return replay(arguments);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
