// error: this method hides one of Callback, Algorithm or LoggerDestination without overriding it
#include "composer/core/plugins.h"

struct Halving : composer::Algorithm {
  composer::EventSet events() const override;
  bool match(composer::Event event, composer::State& state) const;
  void apply(composer::Event event, composer::State& state, composer::Logger& logger) override;
};
composer::Algorithms algorithms{Halving()};
