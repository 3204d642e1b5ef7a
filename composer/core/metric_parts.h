#pragma once
// What a metric may do besides computing one number from sums: its class derives from Metric and from one of these.
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/core/log_records.h"

namespace composer {

// A metric with several values, such as one for each class. They are reported after compute() as
// metrics/<label>/<name>/<value>, and callbacks may monitor them as "<name>/<value>".
class COMPOSER_EXPORT HasSeveralValues {
 public:
  virtual ~HasSeveralValues();
  virtual std::vector<std::string> value_names() const = 0;  // unique, and always the same; may be empty
  virtual at::Tensor compute_values() const = 0;             // [value_names().size()]; NaN if nothing was added
};

// A metric that keeps rows, such as the score of each sample, instead of sums or beside them. compute() must depend on
// the rows and sums alone, and the rows of two sets of batches, one after the other, must be those of all batches.
class COMPOSER_EXPORT KeepsRows {
 public:
  virtual ~KeepsRows();
  // Calls `visit` for each list of rows, always in the same order, with a unique name for each. A list contains tensors
  // [rows, ...] of one type and device that differ in their first size only, and that are never changed in place. It is
  // empty before the first update. `visit` may replace it.
  using VisitRows = std::function<void(std::string_view name, std::vector<at::Tensor>& rows)>;
  virtual void visit_rows(const VisitRows& visit) = 0;
};

// A metric that is also logged as a table or an image, at the end of each evaluation.
class COMPOSER_EXPORT LogsContent {
 public:
  virtual ~LogsContent();
  // By the last part of the key metrics/<label>/<name>/<part>. May wait for the device.
  virtual std::map<std::string, LogContent> content() const = 0;
};

}  // namespace composer
