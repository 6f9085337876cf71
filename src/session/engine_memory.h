/* SPDX-License-Identifier: MIT */
/*
 * A cache that follows what the machine can spare, where no budget was given: a thread looks at the
 * memory several times a second and says how many slots there should be. Whoever evaluates gives
 * them back or takes them; while nobody does, the thread itself.
 */
#ifndef MF_SESSION_ENGINE_MEMORY_H
#define MF_SESSION_ENGINE_MEMORY_H

#include "base/memory_governor.h"
#include "session/engine.h"

/* No thread is started where the cache cannot change. Errors: MF_ERR_NO_MEMORY. */
mf_status mf_engine_memory_begin(mf_engine *engine, const mf_engine_hooks *hooks, mf_error *error);
void mf_engine_memory_end(mf_engine *engine);

#endif
