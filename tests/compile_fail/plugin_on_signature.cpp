// error: the function must take
#include "composer/core/plugins.h"

const composer::Callbacks callbacks = {composer::on(composer::Event::BATCH_END, [](int) {})};
