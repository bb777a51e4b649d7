/* jinja_scope.h - variables of a running template. Internal to jinja_eval.c and jinja_stmt.c. */
#ifndef SLUICE_JINJA_SCOPE_H
#define SLUICE_JINJA_SCOPE_H

#include "frontend/jinja_ast.h"

struct jvar {
	uint32_t symbol;
	struct jv value;
};

/* A name is looked for from the innermost scope outwards, then among the run's globals. Scopes are small, so linearly. */
struct jscope {
	struct jscope *parent;
	struct jvar *vars;
	uint32_t n, cap;
};

struct jmacro {
	const struct jmacro_def *def;
	struct jscope *scope; /* where it was defined */
};

struct jloop {
	const struct jnode *node; /* of a recursive loop, which can be called */
	struct jscope *scope;     /* outside of the loop */
	struct jseq seq;
	size_t ix;
	uint32_t depth0;
	struct jv last_changed;
};

#endif
