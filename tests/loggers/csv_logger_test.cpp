#include "composer/loggers/csv_logger.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include <ATen/ATen.h>

#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"

namespace composer::loggers::csv_logger_test {
namespace {

using test::text_of;

const std::string kHeader = "step,epoch,batch,time,key,value\n";

struct Run {
  explicit Run(CsvLoggerOptions options) : csv(std::move(options)) { state.run_name = "r"; }
  void log(std::int64_t value) { logger.log_metrics({{"a", value}}, value); }
  void close() { csv.close(state, logger); }
  State state;
  CsvLogger csv;
  Logger logger{state, {&csv}};
};

TEST_CASE("CsvLogger writes a header, then one line for each value, quoted where that is necessary") {
  const test::Folder folder;
  Run run({.path = folder / "{run_name}-{rank}.csv"});
  run.logger.log_hyperparameters({{"seed", std::int64_t{17}}});
  run.state.timestamp = run.state.timestamp.to_next_batch(1, 0, Seconds(0.5));
  run.logger.log_metrics({{"loss", at::full({}, 0.25)}, {"n", std::int64_t{7}}, {"on", true}}, 12);
  const double infinity = std::numeric_limits<double>::infinity();
  run.logger.log_metrics({{"a,b", std::string("x \"y\"\nz")}, {"nan", -std::nan("")}, {"inf", -infinity}}, 13);
  run.close();
  CHECK(text_of(folder / "r-0.csv") == kHeader +
                                           "12,0,1,0.5,loss,0.25\n12,0,1,0.5,n,7\n12,0,1,0.5,on,1\n"
                                           "13,0,1,0.5,\"a,b\",\"x \"\"y\"\"\nz\"\n13,0,1,0.5,nan,nan\n"
                                           "13,0,1,0.5,inf,-inf\n");
}

TEST_CASE("CsvLogger writes the header once into a file that it appends to") {
  const test::Folder folder;
  for (std::int64_t i = 0; i < 2; ++i) {
    Run run({.path = folder / "a.csv", .append = true});
    run.log(i);
    run.close();
  }
  CHECK(text_of(folder / "a.csv") == kHeader + "0,0,0,0,a,0\n1,0,0,0,a,1\n");
}

TEST_CASE("CsvLogger of a resumed run cuts its file to the checkpoint and continues it, with one header") {
  for (const std::int64_t count : {0, 1, 3}) {
    CAPTURE(count);
    const test::Folder folder;
    StateDict checkpoint;
    std::string expected;
    {
      Run run({.path = folder / "a.csv"});
      run.csv.init(run.state, run.logger);
      for (std::int64_t i = 0; i < count; ++i) run.log(i);
      StateVisitor visit = StateVisitor::saving(checkpoint);
      run.csv.visit_state(visit);
      expected = text_of(folder / "a.csv");
      CHECK(expected.starts_with(kHeader));
      run.log(77);
      run.close();
    }
    Run resumed({.path = folder / "a.csv"});
    resumed.state.resumes = true;
    resumed.csv.init(resumed.state, resumed.logger);
    StateVisitor visit = StateVisitor::loading(checkpoint, "ck");
    resumed.csv.visit_state(visit);
    resumed.csv.after_load(resumed.state, resumed.logger);
    resumed.csv.fit_start(resumed.state, resumed.logger);
    resumed.log(88);
    resumed.close();
    CHECK(text_of(folder / "a.csv") == expected + "88,0,0,0,a,88\n");
  }
}

}  // namespace
}  // namespace composer::loggers::csv_logger_test
