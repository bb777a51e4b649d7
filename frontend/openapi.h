/* openapi.h - the text parts of /openapi.json: the schemas that no table of ours could give (openapi_schemas.c), in JSON with ' for ".
 *
 * $ stands for the properties of an endpoint's parameters, @ for the schema of a model's name, ~ for the greatest token id. */
#ifndef SLUICE_OPENAPI_H
#define SLUICE_OPENAPI_H

#include "common/base.h"

struct openapi_schema {
	const char *name;
	const char *text;
	int where; /* params_endpoint bit: whose parameters $ stands for */
};

const struct openapi_schema *openapi_schemas(size_t *n);
/* The schema of a parameter that the table of parameters has code for; NULL: none is known. */
const char *openapi_parameter(const char *name, int where);

#endif
